package output

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// timeFormat is how a time is shown: in the zone of this machine, which it names by its offset.
const timeFormat = "2006-01-02 15:04:05 -07:00"

// Time is a time for people.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(timeFormat)
}

// layouts are what a time may be written as, in the zone of this machine unless it names another one.
var layouts = []string{time.RFC3339, timeFormat, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly}

// TimeHelp says how a time can be written.
const TimeHelp = "7d, 2h30m, 2026-11-15, \"2026-11-15 08:00\", today, yesterday or RFC 3339"

var agoPattern = regexp.MustCompile(`^(?:(\d{1,5})w)?(?:(\d{1,5})d)?([0-9hms.]*)$`)

// ParseTime reads a time, or how long before now it is. A day is its beginning.
func ParseTime(text string, now time.Time) (time.Time, error) {
	day := func(back int) time.Time {
		y, m, d := now.Local().Date()
		return time.Date(y, m, d-back, 0, 0, 0, 0, time.Local)
	}
	switch strings.ToLower(text) {
	case "now":
		return now, nil
	case "today":
		return day(0), nil
	case "yesterday":
		return day(1), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	ago, err := parseAgo(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no time: write %s", text, TimeHelp)
	}
	return now.Add(-ago), nil
}

// parseAgo reads a duration with weeks and days, such as 1w2d or 7d12h.
func parseAgo(text string) (time.Duration, error) {
	m := agoPattern.FindStringSubmatch(text)
	if m == nil || text == "" {
		return 0, errors.New("no duration")
	}
	var sum time.Duration
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour} {
		if m[i+1] != "" {
			n, err := strconv.Atoi(m[i+1])
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n) * unit
		}
	}
	if m[3] == "" {
		return sum, nil
	}
	rest, err := time.ParseDuration(m[3])
	return sum + rest, err
}
