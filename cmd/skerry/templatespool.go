package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/template"
	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

// maxReplicas bounds the pods that wait in one pool of the cluster.
const maxReplicas = 1000

func newTemplatesPool() *cobra.Command {
	replicas := 1
	cmd := &cobra.Command{
		Use: "pool NAME", Short: "Print the SandboxTemplate and SandboxWarmPool that a template claims its sandboxes from",
		Long: "Prints what agent-sandbox needs to make the pods that the template's `kubernetes.claim.pool` names, as YAML for `kubectl apply -f -`: a Secret with\n" +
			"the certificate of the pool, a SandboxTemplate and a SandboxWarmPool. Run it where the server runs, with the same SKERRY_CONFIG and SKERRY_… variables,\n" +
			"and again after each upgrade and each change of the template: a pod of another shape is refused. The output has a private key.",
		Example: "  kubectl -n skerry exec deploy/skerry -- skerry templates pool data --replicas 5 | kubectl apply -f -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if replicas < 0 || replicas > maxReplicas {
				return fmt.Errorf("--replicas %d: want 0 to %d", replicas, maxReplicas)
			}
			cfg, err := config.Load(envOr("SKERRY_CONFIG", ""), os.LookupEnv)
			if err != nil {
				return err
			}
			p := &parts{cfg: cfg, log: slog.New(slog.DiscardHandler)}
			return p.printPool(cmd.Context(), cmd.OutOrStdout(), args[0], replicas)
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", replicas, "how many pods wait")
	return cmd
}

func (p *parts) printPool(ctx context.Context, w io.Writer, name string, replicas int) error {
	t, err := p.templateFile(name)
	if err != nil {
		return err
	}
	image, ok := t.ImageFor(template.InCluster, p.cfg.Images)
	switch {
	case t.ClaimPool == "":
		return fmt.Errorf("template %s claims no sandboxes: it has to say kubernetes: {claim: {pool: NAME}}", name)
	case !ok:
		return fmt.Errorf("template %s has no image for the driver kubernetes", name)
	}
	o, err := p.kubernetesOptions()
	if err != nil {
		return err
	}
	if o.Authority, err = p.authority(ctx); err != nil {
		return err
	}
	objects, err := o.Pool(t.ClaimPool, orchestrator.PoolSpec(orchestrator.Template{Template: t.Vocabulary(), Image: image}), replicas)
	if err != nil {
		return err
	}
	out := yaml.NewEncoder(w)
	for _, object := range objects {
		if err := out.Encode(object); err != nil {
			return err
		}
	}
	return out.Close()
}

// templateFiles are the templates of the configuration, whether or not they fit the driver.
func (p *parts) templateFiles() ([]template.Template, error) {
	var dir fs.FS = sandboxtemplates.FS
	if p.cfg.Templates != "" {
		dir = os.DirFS(p.cfg.Templates)
	}
	return template.Load(dir)
}

func (p *parts) templateFile(name string) (template.Template, error) {
	list, err := p.templateFiles()
	if err != nil {
		return template.Template{}, err
	}
	var names []string
	for _, t := range list {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return template.Template{}, fmt.Errorf("there is no template %q; there are %v", name, names)
}
