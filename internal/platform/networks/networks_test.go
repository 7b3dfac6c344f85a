package networks

import (
	"fmt"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := Parse([]string{"10.1.2.3/16", "192.0.2.1", "fd00::1", "fd00::/8"})
	if want := "[10.1.0.0/16 192.0.2.1/32 fd00::1/128 fd00::/8]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v %v, want %s", got, err, want)
	}
	for _, bad := range []string{"", "10.1", "10.0.0.0/33", "example.com"} {
		if got, err := Parse([]string{"10.0.0.1", bad}); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}
