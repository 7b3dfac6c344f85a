package policy

import (
	_ "embed"
	"sync"
)

//go:embed default.yaml
var defaultText []byte

// Default returns the rules of a server that has no file of its own. It panics when they are wrong, which a test sees.
var Default = sync.OnceValue(func() *Rules {
	rules, err := Parse(defaultText)
	if err != nil {
		panic("policy: the built-in rules: " + err.Error())
	}
	return rules
})
