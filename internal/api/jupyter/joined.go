package jupyter

import (
	"crypto/sha256"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Connections that may be open at once, on one server.
const (
	maxOfKernel = 8
	maxOfSecret = 256
)

// joined counts the connections to channels, by kernel and by the credential that they came with.
type joined struct {
	mu       sync.Mutex
	byKernel map[string]int
	bySecret map[[sha256.Size]byte]int
}

// of is how many a kernel has.
func (j *joined) of(kernel string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.byKernel[kernel]
}

// enter counts a connection, which leave takes out again.
func (j *joined) enter(kernel, secret string) (leave func(), err error) {
	by := sha256.Sum256([]byte(secret))
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.byKernel[kernel] >= maxOfKernel:
		return nil, sandbox.TooManyCalls("the kernel has %d connections, its most: close one, then join again", maxOfKernel)
	case j.bySecret[by] >= maxOfSecret:
		return nil, sandbox.TooManyCalls("%d connections came with this credential, the most: close one, then join again", maxOfSecret)
	}
	if j.byKernel == nil {
		j.byKernel, j.bySecret = map[string]int{}, map[[sha256.Size]byte]int{}
	}
	j.byKernel[kernel]++
	j.bySecret[by]++
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.byKernel[kernel]--; j.byKernel[kernel] == 0 {
			delete(j.byKernel, kernel)
		}
		if j.bySecret[by]--; j.bySecret[by] == 0 {
			delete(j.bySecret, by)
		}
	}, nil
}
