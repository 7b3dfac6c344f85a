package doctor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// built is before any clock that is right.
var built = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// Clock looks at the clock: audit records, logins and leases go by it.
func Clock(_ context.Context, r *Report) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t) // asks only: no mode is set
	clock(r, time.Now(), err == nil && state != unix.TIME_ERROR, err == nil)
}

func clock(r *Report, now time.Time, synchronised, known bool) {
	const fix = "run a time service, such as chrony or systemd-timesyncd"
	said := now.UTC().Format("2006-01-02 15:04:05 MST")
	switch {
	case now.Before(built):
		r.Problem("", fix, "says %s, which is past: certificates and logins are taken for invalid", said)
	case !known:
		r.Warn("", fix, "says %s; whether it is synchronised cannot be found out", said)
	case !synchronised:
		r.Warn("", fix, "says %s and is not synchronised: the times of the audit log are as wrong as it is", said)
	default:
		r.OK("", "synchronised")
	}
}
