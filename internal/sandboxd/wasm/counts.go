package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	header = 8 // the magic number and the version of a module
	// maxLocals is how many variables a function may have, as in browsers: wazero notes each of four billion that eight bytes name.
	maxLocals = 50_000
)

// Of the binary format, https://webassembly.github.io/spec/core/binary/.
const (
	customSection = 0

	functype = 0x60
	refNull  = 0x63 // before the type that a reference has
	ref      = 0x64
	end      = 0x0b // of an expression
)

// sections by their number. Those with least are a vector: how many bytes an entry has at least, and what reads an entry that
// names more.
var sections = map[byte]struct {
	name  string
	least uint64
	entry func(*look)
}{
	customSection: {name: "custom"},
	1:             {"type", 3, (*look).functionType}, 2: {"import", 4, (*look).imported}, 3: {"function", 1, nil}, 4: {"table", 3, nil},
	5: {"memory", 2, nil}, 6: {"global", 3, nil}, 7: {"export", 3, (*look).exported}, 9: {"element", 2, (*look).element},
	10: {"code", 3, (*look).function}, 11: {"data", 2, (*look).data}, 13: {"tag", 2, nil},
}

// checkCounts refuses a module that names more of anything than it has bytes for, or more local variables than maxLocals:
// wazero sets memory aside for what is named before it reads the first. What else is wrong with a module wazero says.
func checkCounts(module []byte) error {
	if len(module) < header {
		return nil
	}
	l := look{rest: module[header:]}
	for len(l.rest) > 0 {
		id := l.byte()
		kind := sections[id]
		l.within(func(section *look) {
			if id == customSection {
				section.custom()
			} else if kind.least > 0 {
				section.each(kind.least, kind.entry)
			}
		})
		if l.err != nil {
			return fmt.Errorf("section %s: %w", kind.name, l.err)
		}
	}
	return nil
}

var errShort = errors.New("it ends within an entry")

// look reads a part of a module.
type look struct {
	rest    []byte
	err     error // the first
	stopped bool
}

func (l *look) refuse(err error) {
	if !l.stopped {
		l.err = err
	}
	l.stop()
}

// stop ends a look at what wazero refuses.
func (l *look) stop() { l.rest, l.stopped = nil, true }

func (l *look) byte() byte {
	if len(l.rest) == 0 {
		l.refuse(errShort)
		return 0
	}
	b := l.rest[0]
	l.rest = l.rest[1:]
	return b
}

// uint reads a number in LEB128. One with a sign has as many bytes.
func (l *look) uint() uint64 {
	n, size := binary.Uvarint(l.rest)
	if size <= 0 {
		l.refuse(errShort)
		return 0
	}
	l.rest = l.rest[size:]
	return n
}

// part takes the next bytes.
func (l *look) part(size uint64) look {
	if size > uint64(len(l.rest)) {
		l.refuse(fmt.Errorf("%d bytes are named, and %d are there", size, len(l.rest)))
		return look{}
	}
	p := look{rest: l.rest[:size]}
	l.rest = l.rest[size:]
	return p
}

// within reads what has its size before it as a look of its own, whose error is that of the whole.
func (l *look) within(read func(*look)) {
	p := l.part(l.uint())
	if read(&p); p.err != nil {
		l.refuse(p.err)
	}
}

// sized skips what has its size before it: names, the bytes of data.
func (l *look) sized() { l.part(l.uint()) }

// each reads a vector whose entries have least bytes each, or more.
func (l *look) each(least uint64, entry func(*look)) {
	count := l.uint()
	if count > uint64(len(l.rest))/least {
		l.refuse(fmt.Errorf("%d entries are named in %d bytes", count, len(l.rest)))
	}
	for ; entry != nil && count > 0 && !l.stopped; count-- {
		entry(l)
	}
}

func (l *look) valueType() {
	if kind := l.byte(); kind == ref || kind == refNull {
		l.uint()
	}
}

func (l *look) functionType() {
	if l.byte() != functype {
		l.stop()
		return
	}
	l.each(1, (*look).valueType) // parameters
	l.each(1, (*look).valueType) // results
}

func (l *look) imported() {
	l.sized()
	l.sized()
	switch l.byte() {
	case 0: // a function
		l.uint()
	case 1:
		l.table()
	case 2: // a memory
		l.limits()
	case 3: // a global variable
		l.valueType()
		l.byte()
	case 4: // a tag
		l.byte()
		l.uint()
	default:
		l.stop()
	}
}

// table reads the type of a table; one that begins with 0x40 has a first value behind it.
func (l *look) table() {
	valued := len(l.rest) > 0 && l.rest[0] == 0x40
	if valued {
		l.byte()
		l.byte()
	}
	l.valueType()
	l.limits()
	if valued {
		l.expression()
	}
}

func (l *look) limits() {
	flag := l.byte()
	l.uint()
	switch flag {
	case 0, 2:
	case 1, 3:
		l.uint()
	default:
		l.stop()
	}
}

func (l *look) exported() {
	l.sized()
	l.byte()
	l.uint()
}

// expression skips a constant expression.
func (l *look) expression() {
	for !l.stopped {
		switch l.byte() {
		case end:
			return
		case 0x23, 0x41, 0x42, 0xd0, 0xd2: // global.get, i32.const, i64.const, ref.null, ref.func
			l.uint()
		case 0x43: // f32.const
			l.part(4)
		case 0x44: // f64.const
			l.part(8)
		case 0xfd: // v128.const
			l.byte()
			l.part(16)
		case 0x6a, 0x6b, 0x6c, 0x7c, 0x7d, 0x7e: // add, sub and mul of i32 and i64
		default:
			l.stop()
		}
	}
}

// element reads a segment of a table: https://webassembly.github.io/spec/core/binary/modules.html#element-section
func (l *look) element() {
	flags := l.uint()
	if flags > 7 {
		l.stop()
		return
	}
	passive, index, expressions := flags&1 != 0, flags&2 != 0, flags&4 != 0
	if !passive {
		if index {
			l.uint()
		}
		l.expression()
	}
	if passive || index {
		l.valueType() // or the kind, a byte
	}
	if expressions {
		l.each(1, (*look).expression)
	} else {
		l.each(1, func(l *look) { l.uint() })
	}
}

func (l *look) data() {
	switch l.uint() {
	case 0:
		l.expression()
	case 1: // passive
	case 2:
		l.uint()
		l.expression()
	default:
		l.stop()
	}
	l.sized()
}

func (l *look) function() {
	locals := uint64(0)
	l.within(func(body *look) {
		body.each(2, func(l *look) {
			// No sum passes the greatest number: each is bounded before it is added.
			if n := l.uint(); n > maxLocals || locals+n > maxLocals {
				l.refuse(fmt.Errorf("a function has more than %d local variables", maxLocals))
			} else {
				locals += n
			}
			l.valueType()
		})
	})
}

// custom reads names of functions and variables. Other custom sections are skipped as a whole.
func (l *look) custom() {
	name := l.part(l.uint())
	if string(name.rest) != "name" {
		return
	}
	named := func(l *look) {
		l.uint()
		l.sized()
	}
	for len(l.rest) > 0 {
		id := l.byte()
		l.within(func(names *look) {
			switch id {
			case 0: // of the module
				names.sized()
			case 1: // of functions
				names.each(2, named)
			case 2: // of variables, by function
				names.each(2, func(l *look) {
					l.uint()
					l.each(2, named)
				})
			default:
				return
			}
			// wazero would go on behind the last name, not behind the part.
			if len(names.rest) > 0 {
				names.refuse(fmt.Errorf("%d bytes are left after the names", len(names.rest)))
			}
		})
	}
}
