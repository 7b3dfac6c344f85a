package instance

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestDiskUsed: files are walked by one caller at a time, and for a twentieth of the time at most.
func TestDiskUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d disk
		walks, takes, failed := int64(0), time.Duration(0), error(nil)
		measure := func() (sandbox.DiskUsage, error) {
			walks++
			n := walks
			time.Sleep(takes)
			return sandbox.DiskUsage{Bytes: n}, failed
		}
		want := func(bytes int64) {
			t.Helper()
			if u := d.Used(measure); u == nil || u.Bytes != bytes {
				t.Errorf("%+v, want %d bytes", u, bytes)
			}
		}
		want(1)
		want(1)
		time.Sleep(diskAge)
		takes = time.Second
		go d.Used(measure)
		synctest.Wait()
		want(1) // while another caller measures
		time.Sleep(diskAge + time.Second)
		want(2) // a walk of a second is not made again that early
		time.Sleep(diskShare * time.Second)
		failed = errors.New("too deep")
		if u := d.Used(measure); u != nil {
			t.Errorf("%+v of files that cannot be counted", u)
		}
	})
}
