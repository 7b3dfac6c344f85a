package attack

import "slices"

// inside lists the attacks from inside a sandbox.
func inside() []Attack {
	return slices.Concat(insideFiles())
}
