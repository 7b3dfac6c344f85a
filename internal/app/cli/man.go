package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
)

// newMan writes the manual for packages. It is hidden: users read the pages by man.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write a man page for each command", Hidden: true, Args: cobra.ExactArgs(1), Annotations: map[string]string{alone: "yes"},
		Long: "Writes a man page for each command into a folder that exists. SOURCE_DATE_EPOCH is their date.",
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "skerry " + buildinfo.Version(), Manual: "Skerry"}, args[0])
		},
	}
}
