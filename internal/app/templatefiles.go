package app

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/hooks"
	"github.com/skerry-sandbox/skerry/internal/template"
	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

func (p *App) printPool(ctx context.Context, w io.Writer, name string, replicas int) error {
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

// templateFiles are the templates of the configuration, whether or not they fit the driver.
func (p *App) templateFiles() ([]template.Template, error) {
	var dir fs.FS = sandboxtemplates.FS
	if p.cfg.Templates != "" {
		dir = os.DirFS(p.cfg.Templates)
	}
	return template.Load(dir)
}

func (p *App) templateFile(name string) (template.Template, error) {
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
