package hub

import (
	"errors"
	"log/slog"
	"os/exec"
	"strconv"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func itoa(n int) string { return strconv.Itoa(n) }

func asError(err error, e **sandbox.Error) bool { return errors.As(err, e) }

var quiet = slog.New(slog.DiscardHandler)

func serverCommand(bin string) *exec.Cmd { return exec.Command(bin, serverArgument) }
