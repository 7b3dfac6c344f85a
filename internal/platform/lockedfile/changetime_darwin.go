package lockedfile

import (
	"syscall"
	"time"
)

func changeTime(sys *syscall.Stat_t) time.Time { return time.Unix(sys.Ctimespec.Unix()) }
