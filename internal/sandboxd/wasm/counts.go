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

// Of the section type.
const (
	typeSection = 1
	functype    = 0x60
	refNull     = 0x63 // before the type that a reference has
	ref         = 0x64
)

// checkTypes refuses a function that has more parameters or results than the section has bytes left. What is no function
// ends the look: wazero ends there, too.
func checkTypes(rest []byte, count uint64) error {
	for ; count > 0 && len(rest) > 0 && rest[0] == functype; count-- {
		rest = rest[1:]
		for range 2 { // parameters, then results
			values, n := binary.Uvarint(rest)
			if n <= 0 {
				return nil
			}
			if rest = rest[n:]; values > uint64(len(rest)) {
				return fmt.Errorf("a function type has %d bytes and names %d values", len(rest), values)
			}
			for ; values > 0 && len(rest) > 0; values-- {
				kind := rest[0]
				if rest = rest[1:]; kind == ref || kind == refNull {
					_, n := binary.Uvarint(rest)
					rest = rest[max(n, 0):]
				}
			}
		}
	}
	return nil
}

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
			} else if id == typeSection && m > 0 {
				if err := checkTypes(section[m:], count); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
