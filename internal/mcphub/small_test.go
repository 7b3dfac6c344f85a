package mcphub

import (
	"errors"
	"strconv"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func itoa(n int) string { return strconv.Itoa(n) }

func asError(err error, e **sandbox.Error) bool { return errors.As(err, e) }
