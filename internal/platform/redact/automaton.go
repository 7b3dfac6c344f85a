package redact

// An Aho-Corasick automaton: one look at each byte, however many values there are. Its nodes are the
// beginnings of the values; children are a linked list, because nearly all nodes have one.

type node struct {
	child, next int32 // first child, next sibling; 0 = none, for the root is no child
	fail        int32 // the longest proper end of this beginning that is a beginning, too
	hit         int32 // length of the longest value that ends here; 0 = none
	depth       int32
	char        byte
}

func (s *Secrets) add(value string) {
	if len(value) < MinLength {
		return // base64 of the shortest values: too short to tell
	}
	at := int32(0)
	for i := range len(value) {
		to := s.childOf(at, value[i])
		if to == 0 {
			to = int32(len(s.nodes)) //nolint:gosec // MaxTotal bounds it
			s.nodes = append(s.nodes, node{next: s.nodes[at].child, depth: s.nodes[at].depth + 1, char: value[i]})
			s.nodes[at].child = to
			if at == 0 {
				s.first[value[i]] = to
			}
		}
		at = to
	}
	if s.nodes[at].hit == 0 {
		s.nodes[at].hit = s.nodes[at].depth
		s.values = append(s.values, value)
	}
}

func (s *Secrets) childOf(at int32, char byte) int32 {
	if at == 0 {
		return s.first[char]
	}
	for c := s.nodes[at].child; c != 0; c = s.nodes[c].next {
		if s.nodes[c].char == char {
			return c
		}
	}
	return 0
}

// link sets fail and hit, level by level.
func (s *Secrets) link() {
	if s == nil {
		return
	}
	queue := make([]int32, 0, len(s.nodes))
	for c := s.nodes[0].child; c != 0; c = s.nodes[c].next {
		queue = append(queue, c)
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		n := &s.nodes[at]
		if n.depth > 1 {
			n.hit = max(n.hit, s.nodes[n.fail].hit)
		}
		for c := n.child; c != 0; c = s.nodes[c].next {
			s.nodes[c].fail = s.step(n.fail, s.nodes[c].char)
			queue = append(queue, c)
		}
	}
}

// step is the longest beginning that ends with char after the beginning at.
func (s *Secrets) step(at int32, char byte) int32 {
	for {
		if to := s.childOf(at, char); to != 0 || at == 0 {
			return to
		}
		at = s.nodes[at].fail
	}
}

// in reports whether a value is in b.
func (s *Secrets) in(b []byte) bool {
	at := int32(0)
	for _, c := range b {
		if at = s.step(at, c); s.nodes[at].hit > 0 {
			return true
		}
	}
	return false
}

// longestRest is the length of the longest proper end of a value that b begins with.
func (s *Secrets) longestRest(b []byte) int {
	longest := 0
	for _, value := range s.values {
		longest = max(longest, restOf(value, b[:min(len(b), len(value)-1)]))
	}
	return longest
}

// restOf is the length of the longest end of value that is a beginning of b (Knuth, Morris and Pratt: in
// one pass, however often the two repeat themselves).
func restOf(value string, b []byte) int {
	fail := make([]int, len(b)+1)
	for i, n := 1, 0; i < len(b); i++ {
		for n > 0 && b[i] != b[n] {
			n = fail[n]
		}
		if b[i] == b[n] {
			n++
		}
		fail[i+1] = n
	}
	n := 0
	for i := range len(value) {
		if n == len(b) {
			n = fail[n]
		}
		for n > 0 && value[i] != b[n] {
			n = fail[n]
		}
		if len(b) > 0 && value[i] == b[n] {
			n++
		}
	}
	return n
}
