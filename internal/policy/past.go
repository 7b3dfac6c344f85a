package policy

import "time"

// PastQuery says which calls rules are tried on.
type PastQuery struct {
	Since, Until time.Time // zero: a week before Until, and now
	User         string    // only this one's
}

// PastReport is what rules would have said of the calls of a time.
type PastReport struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Calls int       `json:"calls" doc:"That were tried"`
	// Changed are those on which the rules that are tried say something else than those in force.
	Changed int           `json:"changed" doc:"Calls on which the rules that are tried say something else than those in force"`
	Now     Effects       `json:"now" doc:"What the rules in force say"`
	Then    Effects       `json:"then" doc:"What the rules that are tried say"`
	Items   []ChangedCall `json:"items" doc:"Calls with another effect, the newest first; 200 at most"`
	Partial bool          `json:"partial,omitempty" doc:"It stopped at a bound of 50,000 records or ten seconds: since says how far it came"`
	Unread  int           `json:"unread,omitempty" doc:"Calls whose arguments were not kept whole, on which nothing was tried"`
	Notes   []string      `json:"notes" doc:"What may have been otherwise when the calls were made"`
}

// Effects counts calls by what rules say of them.
type Effects struct {
	Allow    int `json:"allow"`
	Approval int `json:"require_approval"`
	Deny     int `json:"deny"`
}

// Add counts a call.
func (e *Effects) Add(effect Effect) {
	switch effect {
	case Allow:
		e.Allow++
	case RequireApproval:
		e.Approval++
	default:
		e.Deny++
	}
}

// ChangedCall is a call of which other rules say something else.
type ChangedCall struct {
	Record  string    `json:"record" doc:"Id of its audit record"`
	Time    time.Time `json:"ts"`
	User    string    `json:"user"`
	Thread  string    `json:"thread_id"`
	Action  string    `json:"action"`
	Subject string    `json:"subject"`
	Now     Effect    `json:"now"`
	Then    Effect    `json:"then"`
	Rules   []Reason  `json:"rules,omitempty" doc:"Those that decide then; none: the default"`
}
