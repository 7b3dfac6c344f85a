package sandbox

import "time"

// The modes in which an agent gets its tools.
const (
	ModeDirect = "direct" // every tool is registered with the model
	ModeCode   = "code"   // the model writes code that calls them
	ModeAuto   = "auto"   // direct while the definitions have at most CodeSettings.AutoTokens, code above
)

// CodeSettings say how the agents of one tenant get their tools and run code. It is the section
// code_execution of the configuration.
type CodeSettings struct {
	Disabled       bool   // agents are offered no execute_code, and so every mode is direct
	Mode           string // ModeDirect, ModeCode or ModeAuto; of threads that ask for none
	AutoTokens     int    // of definitions that ModeAuto still offers directly
	Language       string // of execute_code when a call names none
	Timeout        time.Duration
	MaxOutputChars int // of stdout, when a call says nothing
}

// DefaultCodeSettings are the settings when nothing is configured.
func DefaultCodeSettings() CodeSettings {
	return CodeSettings{Mode: ModeAuto, AutoTokens: 3000, Language: "typescript", Timeout: DefaultCodeTimeout, MaxOutputChars: 10_000}
}

// ModeOf returns the mode of a thread that asked for a mode ("" = it asked for none): ModeDirect or
// ModeCode. tokens is what its model would read of tools (ToolSet.ShownTokens).
func (s CodeSettings) ModeOf(asked string, tokens int) string {
	if asked == "" {
		asked = s.Mode
	}
	switch {
	case s.Disabled:
		return ModeDirect
	case asked == ModeDirect || asked == ModeCode:
		return asked
	case tokens > s.AutoTokens:
		return ModeCode
	}
	return ModeDirect
}

// Offer is how the agent of a thread gets its tools.
type Offer struct {
	Mode  string // ModeDirect or ModeCode
	Code  bool   // execute_code is offered
	Tools ToolSet
}
