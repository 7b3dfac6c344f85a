package audit

import (
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
)

// Rows have hashes of values. A page of List reads its records, so a hash that two values share costs it a look. A
// summary reads none: it has to know that a hash stands for one value. So an index of a segment has the values of
// the fields that are counted, as long as they are few, and says when two of them share a hash.

// The fields whose values an index has.
const (
	nameTenant = iota
	nameUser
	nameAction
	nameTool
	nameOutcome
	nameFields
)

const (
	// maxRowNames and maxRowNameBytes bound the values of one field in one segment.
	maxRowNames     = 16_384
	maxRowNameBytes = 512 << 10
	// maxSavedNames bounds what is read of them from a file: escaping may make them longer.
	maxSavedNames = 32 << 20
)

// rowNames are the values of a segment's records.
type rowNames struct {
	values [nameFields]map[uint32]string
	bytes  [nameFields]int
	full   [nameFields]bool // there are others
	clash  bool             // a value that is here has the hash of another one
}

type rowName struct {
	field int
	hash  uint32
	value string
}

func newRowNames() *rowNames {
	n := &rowNames{}
	for i := range n.values {
		n.values[i] = map[uint32]string{}
	}
	return n
}

// missing appends what a record would add. Only add changes names.
func (n *rowNames) missing(pending []rowName, r record.Indexed) []rowName {
	values := [nameFields]string{nameTenant: r.Tenant, nameUser: r.User, nameAction: r.Action, nameTool: r.Subject, nameOutcome: r.Outcome}
	for field, value := range values {
		if field == nameTool && r.Action != ActionToolCall {
			continue
		}
		hash := short(value)
		known, ok := n.values[field][hash]
		switch {
		case ok && known == value, n.clash && ok, !ok && n.full[field]:
		default:
			pending = append(pending, rowName{field, hash, value})
		}
	}
	return pending
}

func (n *rowNames) add(all []rowName) {
	for _, a := range all {
		known, ok := n.values[a.field][a.hash]
		switch {
		case ok && known == a.value:
		case ok, a.field == nameTool && a.hash == 0: // rows of what is no tool call have a 0 there
			n.clash = true
		case len(n.values[a.field]) >= maxRowNames || n.bytes[a.field]+len(a.value) > maxRowNameBytes:
			n.full[a.field] = true
		default:
			n.values[a.field][a.hash] = a.value
			n.bytes[a.field] += len(a.value)
		}
	}
}

// savedNames is what a file of rows has of them.
type savedNames struct {
	Values [nameFields][]string `json:"values"`
	Full   [nameFields]bool     `json:"full"`
	Clash  bool                 `json:"clash,omitempty"`
}

func (n *rowNames) encode() ([]byte, error) {
	s := savedNames{Full: n.full, Clash: n.clash}
	for field, values := range n.values {
		s.Values[field] = make([]string, 0, len(values))
		for _, v := range values {
			s.Values[field] = append(s.Values[field], v)
		}
	}
	return json.Marshal(s)
}

// decodeNames returns nil for what encode did not make.
func decodeNames(text []byte) *rowNames {
	var s savedNames
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	n := newRowNames()
	for field, values := range s.Values {
		for _, v := range values {
			n.values[field][short(v)] = v
		}
	}
	n.full, n.clash = s.Full, s.Clash
	return n
}
