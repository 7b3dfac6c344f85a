package app

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/template"
	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

// PrintPool prints the objects of a warm pool as YAML.
func PrintPool(ctx context.Context, cfg config.Config, w io.Writer, name string, replicas int) error {
	t, err := templateFile(cfg, name)
	if err != nil {
		return err
	}
	image, ok := t.ImageFor(template.InCluster, cfg.Images)
	switch {
	case t.ClaimPool == "":
		return fmt.Errorf("template %s claims no sandboxes: it has to say kubernetes: {claim: {pool: NAME}}", name)
	case !ok:
		return fmt.Errorf("template %s has no image for the driver kubernetes", name)
	}
	o, err := KubernetesOptions(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if o.Authority, err = authority(ctx, cfg); err != nil {
		return err
	}
	objects, err := o.Pool(t.ClaimPool, hooks.PoolSpec(instance.Template{Template: t.Vocabulary(), Image: image}), replicas)
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

// TemplateFiles are the templates of the configuration, whether or not they fit the driver.
func TemplateFiles(cfg config.Config) ([]template.Template, error) {
	var dir fs.FS = sandboxtemplates.FS
	if cfg.Templates != "" {
		dir = os.DirFS(cfg.Templates)
	}
	return template.Load(dir, sandboxtemplates.FS)
}

func templateFile(cfg config.Config, name string) (template.Template, error) {
	list, err := TemplateFiles(cfg)
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
