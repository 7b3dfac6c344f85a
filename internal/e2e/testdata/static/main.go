// Command static is the only program of an image in a test.
package main

import (
	"fmt"
	"os"
)

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "write":
		if err := os.WriteFile(os.Args[2], []byte("written\n"), 0o600); err != nil {
			fmt.Println("refused")
			return
		}
		fmt.Println("written")
	case len(os.Args) == 3 && os.Args[1] == "env":
		fmt.Println(os.Getenv(os.Args[2]))
	case len(os.Args) == 2 && os.Args[1] == "who":
		home, err := os.UserHomeDir()
		dir, err2 := os.Getwd()
		fmt.Println(os.Getuid() > 1000, home, dir, err, err2)
	default:
		fmt.Fprintln(os.Stderr, "the image's own entry point was run")
		os.Exit(3)
	}
}
