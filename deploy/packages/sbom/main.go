// Command sbom writes what an image or programs of a release are made of, as NAME.cdx.json (CycloneDX) and NAME.spdx.json
// (SPDX). scripts/release.sh runs it.
//
//	sbom -of skerry/base -version 0.2.0 -time SECONDS [-list FILE] -out dist/NAME [PROGRAM…]
//
// FILE is what internal/template/sbom/list.sh printed in the image. Without it, the list is of programs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/skerry-sandbox/skerry/internal/template/sbom"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	of := sbom.Subject{}
	flags.StringVar(&of.Name, "of", "", "name of what the list is of")
	flags.StringVar(&of.Version, "version", "", "its version")
	flags.BoolVar(&of.Program, "program", false, "it is no image")
	seconds := flags.Int64("time", 0, "seconds of the commit since 1970, so that the same release has the same bytes")
	file := flags.String("list", "", "what list.sh printed")
	out := flags.String("out", "", "files to write, without .cdx.json and .spdx.json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if of.Name == "" || *out == "" || *file == "" && flags.NArg() == 0 {
		return errors.New("wanted: -of, -out, and -list or programs")
	}
	of.Time, of.Tool = time.Unix(*seconds, 0), of.Version
	list, err := parts(*file, flags.Args(), of.Version)
	if err != nil {
		return err
	}
	return errors.Join(
		write(*out+".cdx.json", func(w io.Writer) error { return list.Write(w, of) }),
		write(*out+".spdx.json", func(w io.Writer) error { return list.WriteSPDX(w, of) }))
}

func parts(file string, programs []string, version string) (list sbom.List, err error) {
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return list, err
		}
		defer f.Close() //nolint:errcheck // it was only read
		if list, err = sbom.Parse(f); err != nil {
			return list, fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, program := range programs {
		if err := list.AddProgram(program, version); err != nil {
			return list, err
		}
	}
	return list, nil
}

func write(name string, to func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(to(f), f.Close())
}
