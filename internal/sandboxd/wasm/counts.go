package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// header is the magic number and the version of a module.
const header = 8

// Sections whose content is a vector: its length, then as many entries of at least one byte.
// https://webassembly.github.io/spec/core/binary/modules.html#sections
var vectors = map[byte]string{1: "type", 2: "import", 3: "function", 4: "table", 5: "memory", 6: "global", 7: "export", 9: "element", 10: "code", 11: "data", 13: "tag"}

// checkCounts refuses a section that names more entries than it has bytes: wazero allocates for as many as are named before it
// reads the first. What else is wrong with a module wazero says.
func checkCounts(module []byte) error {
	if len(module) < header {
		return nil
	}
	for rest := module[header:]; len(rest) > 0; {
		id := rest[0]
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			return errors.New("a section is longer than the module")
		}
		section := rest[1+n:][:size]
		rest = rest[1+n:][size:]
		if name, is := vectors[id]; is {
			if count, m := binary.Uvarint(section); m > 0 && count > uint64(len(section)-m) {
				return fmt.Errorf("the section %s has %d bytes and names %d entries", name, size, count)
			}
		}
	}
	return nil
}
