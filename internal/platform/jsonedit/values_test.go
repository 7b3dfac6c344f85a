package jsonedit

import "testing"

func TestValues(t *testing.T) {
	for text, want := range map[string]int{
		`1`: 1, `[]`: 2, `[1,2]`: 3, `{"a":"b,{[\",","c":[]}`: 4, `[[[`: 4, `"`: 1, `"\`: 1,
	} {
		if n := Values([]byte(text)); n != want {
			t.Errorf("%s has %d values, want %d", text, n, want)
		}
	}
}
