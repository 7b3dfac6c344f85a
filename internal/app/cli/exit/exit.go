package exit

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Codes of `skerry mcp`, and of the other commands where they have such cases. Scripts rely on them: the numbers stay.
const (
	Failed  = 1 // nothing answered in time, or something broke
	Usage   = 2 // the command line, or the arguments of the tool, are wrong
	NoTool  = 3 // there is no such server, tool or command
	Tool    = 4 // the tool was called and answered with an error
	Partial = 5 // done, but some servers did not answer
)

// Code ends the program with the code of the command that ran in a sandbox.
type Code int

func (c Code) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Failure is an error that ends the program with a code of its own.
type Failure struct {
	Code int
	Err  error
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// As returns an error that ends the program with this code, and says what err says.
func As(code int, err error) error { return &Failure{code, err} }

// With is As with the error of a format.
func With(code int, format string, args ...any) error {
	return &Failure{code, fmt.Errorf(format, args...)}
}

// Of wraps an error of a source with the exit code of its kind.
func Of(err error) error {
	var f *Failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	switch sandbox.KindOf(err) {
	case sandbox.NotFound:
		return &Failure{NoTool, err}
	case sandbox.Invalid:
		return &Failure{Usage, err}
	case sandbox.ToolFailed:
		return &Failure{Tool, err}
	}
	return &Failure{Failed, err}
}

// Arguments makes a wrong number of arguments a usage error.
func Arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		var said *Failure
		if err := check(cmd, args); errors.As(err, &said) {
			return err
		} else if err != nil {
			return With(Usage, "%w\nUsage: %s", err, cmd.UseLine())
		}
		return nil
	}
}
