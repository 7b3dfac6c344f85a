package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/skerry-sandbox/skerry/internal/platform/boundedproto"
)

// TestMessagesCostNoMoreThanTheyMay: neither what they decode to nor a length that comes to nothing.
func TestMessagesCostNoMoreThanTheyMay(t *testing.T) {
	empty := bytes.Repeat([]byte{0x0a, 0}, 500_000)
	for name, c := range map[string]struct {
		raw  []byte
		into proto.Message
	}{
		"half a million entries": {append(binary.BigEndian.AppendUint32(nil, uint32(len(empty))), empty...), &Entries{}},
		"half a million numbers": {append(binary.BigEndian.AppendUint32(nil, 500_004), append([]byte{0x0a, 0xa0, 0xc2, 0x1e}, make([]byte, 500_000)...)...), &Wanted{}},
		"a long name":            {[]byte{0, 0x0f, 0, 0, 'x'}, &Socket{}},
		"a long hello":           {[]byte{0, 0x0f, 0, 0, 'x'}, &Hello{}},
		"a long outcome":         {[]byte{0, 0x0f, 0, 0, 'x'}, &Outcome{}},
	} {
		s := hear(c.raw)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := s.Receive(c.into)
		runtime.ReadMemStats(&after)
		if err == nil || len(c.raw) > 1<<20-100_000 && !errors.Is(err, boundedproto.ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(c.raw)+64<<10) {
			t.Errorf("%s: %d bytes of memory for %d", name, n, len(c.raw))
		}
	}
}
