package sandbox

import (
	"strings"
	"time"
)

// AllUsers in ThreadFilter.User stands for all users of the tenant.
const AllUsers = "*"

// ThreadFilter selects threads.
type ThreadFilter struct {
	User     string // "" = the caller; AllUsers, and others, for administrators
	Labels   map[string]string
	State    State  // of the sandbox; "" = any, also threads without a sandbox
	Template string // of the sandbox
	Text     string // in the thread's id, its user, or a value of its labels, whatever its case
	// ActiveAfter and ActiveBefore bound the last activity; zero: they do not.
	ActiveAfter, ActiveBefore time.Time
	// Latest sorts by the last activity, the latest first, instead of by id.
	Latest bool
	// Largest sorts by the size of the files, the largest first, and leaves out threads that were never measured. MinDisk is
	// the least size, in bytes; 0: any.
	Largest bool
	MinDisk int64
	Limit   int
	Cursor  string
}

// ThreadList is a part of a list of threads.
type ThreadList struct {
	Items []ThreadView
	Next  string // the cursor of what is left; "": nothing
	Total int64  // how many threads the user or the tenant has, whatever the filter; of the first part only
}

// All reports whether every thread fits, but for its activity in a list that is Latest, and its size in one that is Largest.
func (f *ThreadFilter) All() bool {
	return len(f.Labels) == 0 && f.State == "" && f.Template == "" && f.Text == "" && (f.Latest || f.ActiveAfter.IsZero() && f.ActiveBefore.IsZero()) &&
		(f.Largest || f.MinDisk == 0)
}

// Fits reports whether what is remembered of a thread fits. used is nil when nothing is known.
func (f *ThreadFilter) Fits(t *ThreadInfo, used *ThreadUsage) bool {
	if f.MinDisk > 0 && (used == nil || used.DiskBytes == nil || *used.DiskBytes < f.MinDisk) {
		return false
	}
	for k, v := range f.Labels {
		if got, ok := t.Labels[k]; !ok || got != v {
			return false
		}
	}
	if !f.ActiveAfter.IsZero() && t.LastActiveAt.Before(f.ActiveAfter) || !f.ActiveBefore.IsZero() && t.LastActiveAt.After(f.ActiveBefore) {
		return false
	}
	return f.Text == "" || f.hasText(t)
}

func (f *ThreadFilter) hasText(t *ThreadInfo) bool {
	want := strings.ToLower(f.Text)
	if strings.Contains(strings.ToLower(t.ID), want) || strings.Contains(strings.ToLower(t.User), want) {
		return true
	}
	for _, v := range t.Labels {
		if strings.Contains(strings.ToLower(v), want) {
			return true
		}
	}
	return false
}

// FitsSandbox reports whether the sandbox of a thread fits. nil: it has none.
func (f *ThreadFilter) FitsSandbox(s *Info) bool {
	if s == nil {
		return f.State == "" && f.Template == ""
	}
	return (f.State == "" || s.State == f.State) && (f.Template == "" || s.Template == f.Template)
}
