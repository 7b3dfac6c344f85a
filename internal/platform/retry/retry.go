// Package retry says how long to wait between two tries of what failed. It keeps no state of its own.
package retry

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// spread is how far a pause differs at random, so that those who lost one server do not come back at one moment.
const spread = 0.2

// Doubling returns pauses that double from first to most. Reset begins again with first.
func Doubling(first, most time.Duration) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: most, Multiplier: 2, RandomizationFactor: spread}
}
