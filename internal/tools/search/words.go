package search

import (
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"
)

// maxWord bounds what is stemmed; a longer "word" is data, such as base64.
const maxWord = 64 // bytes

// words cuts a text into lower-case words: at everything that is no letter or digit, and at the humps
// of camelCase. Writing without blanks (Chinese, Japanese, Korean, Thai) is split into pairs of characters.
func words(text string) []string {
	var list []string
	for _, part := range strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '\'' && r != '’'
	}) {
		part = strings.Trim(part, "'’")
		for _, suffix := range []string{"'s", "’s"} {
			part = strings.TrimSuffix(part, suffix)
		}
		for _, w := range humps(part) {
			list = append(list, pairs(strings.ToLower(w))...)
		}
	}
	return list
}

// humps cuts readHTMLFile into read, HTML, File. A digit belongs to the letters before it: s3, base64.
func humps(word string) []string {
	var parts []string
	runes := []rune(word)
	start := 0
	for i := 1; i < len(runes); i++ {
		before, r := runes[i-1], runes[i]
		hump := unicode.IsUpper(r) && !unicode.IsUpper(before) ||
			unicode.IsUpper(r) && i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if hump {
			parts = append(parts, string(runes[start:i]))
			start = i
		}
	}
	if start < len(runes) {
		parts = append(parts, string(runes[start:]))
	}
	return parts
}

func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai)
}

// pairs returns the overlapping pairs of characters of a word that is written without blanks, any other
// word as it is.
func pairs(word string) []string {
	first := strings.IndexFunc(word, unspaced)
	if first < 0 {
		return []string{word}
	}
	var list []string
	if first > 0 {
		list = append(list, word[:first])
	}
	runes := []rune(word[first:])
	if len(runes) == 1 {
		return append(list, string(runes))
	}
	for i := 1; i < len(runes); i++ {
		list = append(list, string(runes[i-1:i+1]))
	}
	return list
}

// stem takes English endings off, so that "files", "listing" and "created" find file, list and create.
func stem(word string) string {
	if len(word) > maxWord {
		return word
	}
	return english.Stem(word, true)
}

// telling returns the words that say something, and all when there are no others. What says nothing is
// the list of stop words of the Snowball project.
func telling(all []string) []string { return without(all, english.IsStopWord) }

// carriers are words with which an agent says what kind of thing it looks for, in place of what it does: "a platform for
// images", "PDF utilities". Few tools have them, so they would count much.
var carriers = map[string]bool{
	"application": true, "applications": true, "capabilities": true, "capability": true, "functionality": true, "operation": true, "operations": true,
	"platform": true, "platforms": true, "processing": true, "provider": true, "providers": true, "service": true, "services": true, "specific": true,
	"tool": true, "tools": true, "utilities": true, "utility": true,
}

// asking returns the words of a query without carriers, and all when there are no others.
func asking(all []string) []string {
	return without(all, func(w string) bool { return carriers[w] })
}

// without takes words out of a list, and none when no others are there.
func without(all []string, empty func(string) bool) []string {
	kept := make([]string, 0, len(all))
	for _, w := range all {
		if !empty(w) {
			kept = append(kept, w)
		}
	}
	if len(kept) == 0 {
		return all
	}
	return kept
}

// stems returns the stems of the telling words of a text.
func stems(text string, stem func(string) string) []string {
	list := telling(words(text))
	for i, w := range list {
		list[i] = stem(w)
	}
	return list
}
