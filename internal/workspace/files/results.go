package files

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// resultsDir holds results of tools that are too large for an answer.
const resultsDir = sandbox.WorkspaceDir + "/.skerry/results"
