package output

import (
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	was := time.Local
	time.Local = zone
	t.Cleanup(func() { time.Local = was })
	now := time.Date(2026, 11, 27, 9, 30, 0, 0, zone)
	for text, want := range map[string]string{
		"7d": "2026-11-20T09:30:00+02:00", "30d": "2026-10-28T09:30:00+02:00", "1w1d2h30m": "2026-11-19T07:00:00+02:00", "90m": "2026-11-27T08:00:00+02:00", "1.5h": "2026-11-27T08:00:00+02:00",
		"2026-11-15": "2026-11-15T00:00:00+02:00", "2026-11-15 08:00": "2026-11-15T08:00:00+02:00", "2026-11-15T08:00:01Z": "2026-11-15T08:00:01Z",
		"today": "2026-11-27T00:00:00+02:00", "Yesterday": "2026-11-26T00:00:00+02:00", "now": "2026-11-27T09:30:00+02:00",
		Time(now): "2026-11-27T09:30:00+02:00",
	} {
		if got, err := ParseTime(text, now); err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q: %s %v, want %s", text, got.Format(time.RFC3339), err, want)
		}
	}
	for _, text := range []string{"", "7", "d", "tomorrow", "2026-13-01", "7x", "-7d", "999999d"} {
		if got, err := ParseTime(text, now); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
	if got := Time(now); got != "2026-11-27 09:30:00 +02:00" {
		t.Error(got)
	}
}
