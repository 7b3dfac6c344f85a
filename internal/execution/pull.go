package execution

import (
	"errors"
	"fmt"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/filesync"
)

// FilesNotPulled says in a result that the exec's files are not at the server.
func (e *Exec) FilesNotPulled(res *sandbox.Result, err error) {
	why := "its sandbox could not be reached any more"
	if !filesync.OutOfReach(err) {
		why = "they cannot be copied (" + string(sandbox.KindOf(err)) + ")"
	}
	if errors.Is(err, sandbox.QuotaExceeded) {
		why = "the sandbox has more than the thread may have: delete some there"
	}
	ended := "it ended as " + string(res.Status)
	if res.ExitCode != nil {
		ended = fmt.Sprintf("it ended with code %d", *res.ExitCode)
	}
	text := fmt.Sprintf("%s, but what it changed in the thread's files is not kept: %s. They are as at the end of the last run before", ended, why)
	e.EndBecause(text)
	if res.Detail != "" {
		text = res.Detail + "; " + text
	}
	if res.Status == sandbox.StatusExited {
		res.Status, res.ExitCode = sandbox.StatusLost, nil
	}
	res.Detail, res.FilesTruncated = text, true
}
