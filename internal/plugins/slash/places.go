package slash

import (
	"strings"
	"unicode"
)

// place is a part of a command's text that something else is put in the place of.
type place struct {
	from, to int // bytes of the text
	kind     placeKind
	name     string // what it names: a number, a name, a command
}

type placeKind int

const (
	placeDollar    placeKind = iota // \$
	placeAll                        // $ARGUMENTS
	placeIndex                      // $ARGUMENTS[0]
	placeNumber                     // $1
	placeName                       // $name
	placeValue                      // ${NAME}
	placeCommand                    // !`command`, or a ```! block
	fence          = "```"
	maxPlaceName   = 64
	maxPlaceDigits = 4
)

// places finds what is to be replaced. It reads the text once: a plugin's author may have meant it to be slow.
func places(text string) []place {
	var list []place
	closed := true // a ```! block that is not closed means that no later one is
	for i := 0; i < len(text); {
		var p place
		var ok bool
		switch text[i] {
		case '\\':
			p, ok = place{from: i, to: i + 2, kind: placeDollar}, strings.HasPrefix(text[i:], `\$`)
		case '$':
			p, ok = dollar(text, i)
		case '!':
			p, ok = inline(text, i)
		case '`':
			if closed && (i == 0 || text[i-1] == '\n') && strings.HasPrefix(text[i:], fence+"!\n") {
				p, ok = block(text, i)
				closed = ok
			}
		}
		if !ok {
			i++
			continue
		}
		list = append(list, p)
		i = p.to
	}
	return list
}

const allArguments = "$ARGUMENTS"

// dollar reads what begins with a $ at i.
func dollar(text string, i int) (place, bool) {
	rest := text[i+1:]
	if strings.HasPrefix(rest, "{") {
		name := prefix(rest[1:], maxPlaceName+1, nameByte)
		end := i + 2 + len(name)
		ok := name != "" && len(name) <= maxPlaceName && !digitByte(name[0]) && strings.HasPrefix(text[end:], "}")
		return place{i, end + 1, placeValue, name}, ok
	}
	if digits := prefix(rest, maxPlaceDigits, digitByte); digits != "" {
		return place{i, i + 1 + len(digits), placeNumber, digits}, true
	}
	name := prefix(rest, maxPlaceName, func(c byte) bool { return nameByte(c) || c == '-' })
	if name == "" || name[0] == '-' {
		return place{}, false
	}
	if word := prefix(rest, maxPlaceName, nameByte); "$"+word == allArguments {
		end := i + len(allArguments)
		if digits := prefix(strings.TrimPrefix(text[end:], "["), maxPlaceDigits, digitByte); digits != "" && strings.HasPrefix(text[end:], "["+digits+"]") {
			return place{i, end + len(digits) + 2, placeIndex, digits}, true
		}
		return place{i, end, placeAll, ""}, true
	}
	return place{i, i + 1 + len(name), placeName, name}, true
}

func nameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || digitByte(c)
}

func digitByte(c byte) bool { return c >= '0' && c <= '9' }

// prefix returns the bytes at the front of s that are of a kind, at most so many.
func prefix(s string, most int, of func(byte) bool) string {
	n := 0
	for n < len(s) && n < most && of(s[n]) {
		n++
	}
	return s[:n]
}

// inline reads !`command` at i, which has to stand after a blank: wow!`x` is none.
func inline(text string, i int) (place, bool) {
	if !strings.HasPrefix(text[i:], "!`") || i > 0 && !unicode.IsSpace(rune(text[i-1])) {
		return place{}, false
	}
	from := i + 2
	n := strings.IndexAny(text[from:], "`\n")
	if n <= 0 || text[from+n] != '`' {
		return place{}, false
	}
	return place{i, from + n + 1, placeCommand, text[from : from+n]}, true
}

// block reads a ```! block at i.
func block(text string, i int) (place, bool) {
	from := i + len(fence) + 2
	for at := from; at < len(text); {
		line, _, more := strings.Cut(text[at:], "\n")
		if strings.TrimRight(line, " \t") == fence {
			return place{i, at + len(line), placeCommand, strings.TrimSuffix(text[from:at], "\n")}, true
		}
		at += len(line)
		if more {
			at++
		}
	}
	return place{}, false
}
