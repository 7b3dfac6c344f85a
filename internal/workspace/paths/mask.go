package paths

import (
	"sort"
	"strings"
)

// masker puts virtual paths in the place of host folders.
type masker struct{ from, to []string }

func newMasker(mounts map[string]*mount) *masker {
	all := make([]*mount, 0, len(mounts))
	for _, m := range mounts {
		if m.host != "/" && m.host != "" {
			all = append(all, m)
		}
	}
	// The longest first: a mount may lie inside another one.
	sort.Slice(all, func(i, j int) bool {
		if len(all[i].host) != len(all[j].host) {
			return len(all[i].host) > len(all[j].host)
		}
		return all[i].virtual < all[j].virtual
	})
	k := &masker{}
	for _, m := range all {
		k.from = append(k.from, m.host)
		k.to = append(k.to, m.virtual)
	}
	return k
}

func (k *masker) replace(text string) string {
	for i, from := range k.from {
		if strings.Contains(text, from) {
			text = replacePath(text, from, k.to[i])
		}
	}
	return text
}

// replacePath replaces from where it is a whole path or the beginning of one, so that /data/ab
// stays when /data/a is replaced.
func replacePath(text, from, to string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, from)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(from)
		b.WriteString(text[:i])
		if end < len(text) && nameByte(text[end]) {
			b.WriteString(from)
		} else {
			b.WriteString(to)
		}
		text = text[end:]
	}
}

func nameByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
