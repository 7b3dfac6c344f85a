package instance

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Template is a template with the image that the driver in use takes.
type Template struct {
	sandbox.Template
	Image string
	// Prepare, when there is one, makes sure before each start that the driver finds the image. It does
	// nothing when that was done. Errors are for the caller.
	Prepare func(ctx context.Context) error
}
