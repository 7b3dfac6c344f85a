package app

import (
	"os"
)

// EnvOr returns a variable of the environment, or fallback when it is unset or empty.
func EnvOr(name, fallback string) string {
	if v, ok := os.LookupEnv(name); ok && v != "" {
		return v
	}
	return fallback
}
