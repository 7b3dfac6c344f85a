package policy

import "fmt"

// Trial is what rules say of a call that is not made.
type Trial struct {
	Effect Effect   `json:"effect"`
	Why    Why      `json:"why"`
	Limits *Bounds  `json:"limits,omitempty"`
	Hidden *Hides   `json:"redact,omitempty"`
	Call   Sample   `json:"call" doc:"The call as it was tried"`
	Notes  []string `json:"notes" doc:"What may have been otherwise when the call was made"`
}

// Bounds are the limits of a decision, as they are shown.
type Bounds struct {
	Rates []string `json:"rates,omitempty" doc:"rule: calls in time"`
	Bytes int64    `json:"bytes,omitempty"`
	Time  string   `json:"time,omitempty"`
}

// Hides is what a decision redacts, as it is shown.
type Hides struct {
	Args   []string `json:"args,omitempty"`
	Result []string `json:"result,omitempty"`
}

// NewTrial shows a decision on a sample.
func NewTrial(d Decision, s Sample, notes []string) Trial {
	t := Trial{Effect: d.Effect(), Why: d.Why, Call: s, Notes: append([]string{}, notes...)}
	if l := d.Limits; len(l.Rates) > 0 || l.Bytes > 0 || l.Time > 0 {
		t.Limits = &Bounds{Bytes: l.Bytes}
		for _, r := range l.Rates {
			t.Limits.Rates = append(t.Limits.Rates, r.String())
		}
		if l.Time > 0 {
			t.Limits.Time = l.Time.String()
		}
	}
	if r := d.Redact; !r.Args.empty() || !r.Result.empty() {
		t.Hidden = &Hides{Args: r.Args.words(), Result: r.Result.words()}
	}
	return t
}

func (r Rate) String() string { return fmt.Sprintf("%s: %d calls in %s", r.Rule, r.Calls, r.Per) }

func (h Hidden) words() []string {
	words := append([]string{}, h.Fields...)
	for _, p := range h.Patterns {
		words = append(words, "/"+p.String()+"/")
	}
	return words
}
