// Package environment reads variables of the environment for the server and its command line.
package environment

import "os"

// Or returns a variable of the environment, or fallback when it is unset or empty.
func Or(name, fallback string) string {
	if v, ok := os.LookupEnv(name); ok && v != "" {
		return v
	}
	return fallback
}
