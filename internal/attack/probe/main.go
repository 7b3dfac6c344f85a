// Command probe is the attacker: a static program that makes one named attempt and says on its output, in a line
// of JSON, how it ended. It also plays those who are attacked, and PID 1 of the containers in which the
// controls run.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// attempt makes one attack. No error: it succeeded, and the text says what it got. An error number or a
// refusal: it was refused. Anything else: it could not be made.
type attempt func(f wire.Facts) (string, error)

// refusal is a reason why an attack got nothing, where no error number says it.
type refusal string

// Error returns the reason.
func (r refusal) Error() string { return string(r) }

func attempts() map[string]attempt {
	all := make(map[string]attempt)
	for _, group := range []map[string]attempt{fileAttempts, mountAttempts, processAttempts, kernelAttempts, networkAttempts, privilegeAttempts} {
		maps.Copy(all, group)
	}
	return all
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: probe run|control|confined NAME FACT=VALUE…, probe list")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(mode string, args []string) error {
	if mode == "list" {
		return json.NewEncoder(os.Stdout).Encode(slices.Sorted(maps.Keys(attempts())))
	}
	if m := modes[mode]; m != nil {
		return m(args)
	}
	return fmt.Errorf("unknown mode %q", mode)
}

func runAttempt(args []string) error {
	if len(args) < 1 {
		return errors.New("no attempt is named")
	}
	facts, err := wire.ParseFacts(args[1:])
	if err != nil {
		return err
	}
	return report(os.Stdout, args[0], facts)
}

// report makes the attempt and writes its outcome.
func report(w io.Writer, name string, facts wire.Facts) error {
	try := attempts()[name]
	if try == nil {
		return fmt.Errorf("unknown attempt %q", name)
	}
	runtime.LockOSThread() // what belongs to a thread, such as namespaces, is changed on one
	evidence, err := try(facts)
	return json.NewEncoder(w).Encode(outcome(name, evidence, err))
}

func outcome(name, evidence string, err error) wire.Outcome {
	out := wire.Outcome{Attack: name, Evidence: evidence}
	var errno unix.Errno
	var reason refusal
	switch {
	case err == nil:
	case errors.As(err, &reason):
		out.Refused = string(reason)
	case errors.As(err, &errno):
		out.Refused, out.Evidence = unix.ErrnoName(errno), err.Error()
	default:
		out.Broken = err.Error()
	}
	return out
}

// broken marks an error of a preparation: its number is no refusal.
func broken(what string, err error) error { return errors.New(what + ": " + err.Error()) }
