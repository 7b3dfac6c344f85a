package hardening

import (
	"encoding/binary"
	"fmt"
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

//go:generate go run gensyscalls.go

// What the kernel lets a filter read (struct seccomp_data), by offset. Arguments are 64 bits wide each, the low
// half first on the machines that we know.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// What a filter answers (SECCOMP_RET_*).
const (
	answerAllow = 0x7fff0000
	answerErrno = 0x00050000
)

// filterArch is the machine's number in seccomp_data (AUDIT_ARCH_*).
var filterArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// SeccompFilter returns the profile as a program that a process loads into the kernel itself. It serves
// engines that take no profile from us. The program is the instructions of struct sock_filter, one after the
// other, little endian. It is for machines of this program's own kind.
func SeccompFilter(r Runtime, loosen ...sandbox.Loosening) ([]byte, error) {
	profile, err := SeccompOCI(r, loosen...)
	if err != nil {
		return nil, err
	}
	instructions, err := compile(profile)
	if err != nil {
		return nil, fmt.Errorf("compile the seccomp profile: %w", err)
	}
	raw, err := bpf.Assemble(instructions)
	if err != nil {
		return nil, fmt.Errorf("assemble the seccomp profile: %w", err)
	}
	out := make([]byte, 0, 8*len(raw))
	for _, i := range raw {
		out = binary.LittleEndian.AppendUint16(out, i.Op)
		out = append(out, i.Jt, i.Jf)
		out = binary.LittleEndian.AppendUint32(out, i.K)
	}
	return out, nil
}

// compile puts the rules with conditions first: a call that one of them lets through, or answers, is done with. What
// no rule names gets the default. A name that this machine does not have needs no rule.
func compile(p *specs.LinuxSeccomp) ([]bpf.Instruction, error) {
	refused, err := answer(p.DefaultAction, p.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	arch, ok := filterArch[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no filter is known for %s", runtime.GOARCH)
	}
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: refused},
	}
	var plain []bpf.Instruction
	for _, rule := range p.Syscalls {
		then, err := answer(rule.Action, rule.ErrnoRet)
		if err != nil {
			return nil, err
		}
		for _, name := range rule.Names {
			number, known := syscallNumbers[name]
			switch {
			case !known:
			case len(rule.Args) == 0:
				plain = append(plain, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: 1}, bpf.RetConstant{Val: then})
			default:
				block, err := conditional(number, rule.Args, then)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				out = append(out, block...)
			}
		}
	}
	out = append(out, bpf.LoadAbsolute{Off: dataNumber, Size: 4})
	return append(append(out, plain...), bpf.RetConstant{Val: refused}), nil
}

func answer(action specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	switch action {
	case specs.ActAllow:
		return answerAllow, nil
	case specs.ActErrno:
		if errno == nil {
			return answerErrno | uint32(unix.EPERM), nil
		}
		return answerErrno | uint32(*errno&0xffff), nil //nolint:gosec // masked
	default:
		return 0, fmt.Errorf("action %s is not known", action)
	}
}

// conditional answers the call of a number when all conditions hold, and else goes on behind itself.
func conditional(number uint32, args []specs.LinuxSeccompArg, then uint32) ([]bpf.Instruction, error) {
	var body []bpf.Instruction
	// fails are the places of jumps that leave the block when they are taken, and when they are not.
	type exit struct {
		at     int
		onTrue bool
	}
	var fails []exit
	check := func(offset, mask, value uint32) {
		body = append(body, bpf.LoadAbsolute{Off: offset, Size: 4})
		if mask != ^uint32(0) {
			body = append(body, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask})
		}
		body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value})
		fails = append(fails, exit{at: len(body) - 1})
	}
	for _, a := range args {
		low := dataArgs + 8*uint32(a.Index) //nolint:gosec // 0 to 5
		switch a.Op {
		case specs.OpEqualTo:
			check(low, ^uint32(0), uint32(a.Value))       //nolint:gosec // the low half
			check(low+4, ^uint32(0), uint32(a.Value>>32)) //nolint:gosec // the high half
		case specs.OpMaskedEqual:
			check(low, uint32(a.Value), uint32(a.ValueTwo))           //nolint:gosec // the low half
			check(low+4, uint32(a.Value>>32), uint32(a.ValueTwo>>32)) //nolint:gosec // the high half
		case specs.OpNotEqual:
			// The high half differs: go on with the next condition. Else the low half must.
			body = append(body,
				bpf.LoadAbsolute{Off: low + 4, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(a.Value >> 32), SkipTrue: 2}, //nolint:gosec // the high half
				bpf.LoadAbsolute{Off: low, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(a.Value)}) //nolint:gosec // the low half
			fails = append(fails, exit{at: len(body) - 1, onTrue: true})
		default:
			return nil, fmt.Errorf("condition %s is not known", a.Op)
		}
	}
	body = append(body, bpf.RetConstant{Val: then})
	if len(body) > 200 { // a jump reaches 255 instructions
		return nil, fmt.Errorf("%d conditions are too many", len(args))
	}
	for _, f := range fails {
		jump := body[f.at].(bpf.JumpIf) //nolint:forcetypeassert // put there above
		over := uint8(len(body) - f.at - 1)
		if f.onTrue {
			jump.SkipTrue = over
		} else {
			jump.SkipFalse = over
		}
		body[f.at] = jump
	}
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: dataNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(body))},
	}, body...), nil
}
