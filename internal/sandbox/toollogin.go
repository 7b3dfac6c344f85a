package sandbox

import "time"

// ToolLogin is a login at an MCP server that waits for a person.
type ToolLogin struct {
	URL         string    `json:"url"`          // to open in a browser
	RedirectURI string    `json:"redirect_uri"` // where the browser is sent back to, with the answer in its query
	Expires     time.Time `json:"expires"`
}
