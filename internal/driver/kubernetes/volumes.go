package kubernetes

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Names of the volumes of a pod.
const (
	volumeDaemon      = "daemon"
	volumeRun         = "run"
	volumeUserData    = "user-data"
	volumeSkills      = "skills"
	volumePlugins     = "plugins"
	volumeCodeAPI     = "code-api"
	volumeHome        = "home"
	volumeTmp         = "tmp"
	volumeShm         = "shm"
	volumeEtc         = "etc"
	volumeCertificate = "certificate"
)

const (
	// fetchedBytes bounds each of the read-only folders: what the server pushes has limits of its own.
	fetchedBytes = 1 << 30
	daemonBytes  = 128 << 20
	runBytes     = 1 << 20
)

// userFolders are the parts of sandbox.UserDataDir. Each is mounted by itself, so that nothing can be made beside them.
var userFolders = []string{sandbox.WorkspaceDir, sandbox.UploadsDir, sandbox.OutputsDir}

type fetchedVolume struct{ volume, dir string }

// fetched are the volumes that the server fills and the sandbox only reads, by their place.
var fetched = []fetchedVolume{
	{volumeSkills, sandbox.SkillsDir}, {volumePlugins, sandbox.PluginsDir}, {volumeCodeAPI, sandbox.CodeAPIDir},
}

// checkTargets refuses mounts where a pod has no volume for them. Volumes cannot be added to a pod, and one may be made
// before it is known what for.
func checkTargets(spec sandbox.Spec) error {
	for _, m := range spec.Mounts {
		if !hasVolume(m.Target) {
			return sandbox.Errorf(sandbox.NotSupported, "a mount at %.200q: on Kubernetes sandboxes have mounts at %s, %s, %s, %s and %s alone",
				m.Target, sandbox.UserDataDir, sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir, sandbox.RunDir)
		}
	}
	return nil
}

func hasVolume(target string) bool {
	return target == sandbox.UserDataDir || target == sandbox.RunDir ||
		slices.ContainsFunc(fetched, func(f fetchedVolume) bool { return f.dir == target })
}

// evictedAt is how large the workspace may be until the cluster ends the sandbox. The limit itself is that of Pull,
// which tells what is wrong and ends nothing.
func evictedAt(l sandbox.Limits) int64 { return l.DiskBytes + max(l.DiskBytes/4, 64<<20) }

func volumes(spec sandbox.Spec) []corev1.Volume {
	out := []corev1.Volume{
		folder(volumeDaemon, daemonBytes, corev1.StorageMediumDefault),
		folder(volumeRun, runBytes, corev1.StorageMediumMemory),
		folder(volumeUserData, evictedAt(spec.Limits), corev1.StorageMediumDefault),
	}
	for _, f := range fetched {
		out = append(out, folder(f.volume, fetchedBytes, corev1.StorageMediumDefault))
	}
	for _, t := range hardening.TmpfsMounts(spec.Limits) {
		out = append(out, folder(tmpfsVolume(t.Target), t.Bytes, corev1.StorageMediumMemory))
	}
	out = append(out, folder(volumeShm, hardening.ShmBytes(spec), corev1.StorageMediumMemory))
	etc := &corev1.DownwardAPIVolumeSource{DefaultMode: new(int32(0o444))}
	for _, name := range etcNames {
		etc.Items = append(etc.Items, corev1.DownwardAPIVolumeFile{
			Path: name, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + etcAnnotation(name) + "']"},
		})
	}
	return append(out,
		corev1.Volume{Name: volumeEtc, VolumeSource: corev1.VolumeSource{DownwardAPI: etc}},
		corev1.Volume{Name: volumeCertificate, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: secretName(spec.ID), DefaultMode: new(int32(0o440)),
		}}})
}

func folder(name string, bytes int64, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: medium, SizeLimit: resource.NewQuantity(bytes, resource.BinarySI),
	}}}
}

func tmpfsVolume(target string) string {
	if target == sandbox.HomeDir {
		return volumeHome
	}
	return volumeTmp
}

// etcNames are the files of /etc that differ between sandboxes. They reach it as annotations of its pod.
var etcNames = []string{"group", "hostname", "hosts", "passwd", "resolv.conf"}

func etcAnnotation(name string) string { return "etc.skerry.io/" + name }

func sandboxMounts() []corev1.VolumeMount {
	out := []corev1.VolumeMount{
		{Name: volumeDaemon, MountPath: path.Dir(sandbox.DaemonPath), ReadOnly: true},
		{Name: volumeRun, MountPath: sandbox.RunDir, ReadOnly: true},
		{Name: volumeTmp, MountPath: "/tmp"},
		{Name: volumeHome, MountPath: sandbox.HomeDir},
		{Name: volumeShm, MountPath: "/dev/shm"},
	}
	for _, f := range fetched {
		out = append(out, corev1.VolumeMount{Name: f.volume, MountPath: f.dir, SubPath: treeFolder, ReadOnly: true})
	}
	for _, dir := range userFolders {
		out = append(out, corev1.VolumeMount{Name: volumeUserData, MountPath: dir, SubPath: treeFolder + "/" + path.Base(dir)})
	}
	for _, name := range etcNames {
		out = append(out, corev1.VolumeMount{Name: volumeEtc, MountPath: "/etc/" + name, SubPath: name, ReadOnly: true})
	}
	return out
}

// bridgeFolder is where the sidecar has a volume that it fills or empties. The volume's root is the cluster's; the
// folder tree in it, which the sidecar makes, is its own.
func bridgeFolder(volume string) string { return "/volumes/" + volume }

// treeFolder is what the sandbox sees of such a volume.
const treeFolder = "tree"

func bridgeMounts() []corev1.VolumeMount {
	out := []corev1.VolumeMount{
		{Name: volumeCertificate, MountPath: certificateDir, ReadOnly: true},
		{Name: volumeRun, MountPath: sandbox.RunDir},
		{Name: volumeDaemon, MountPath: bridgeFolder(volumeDaemon)},
		{Name: volumeUserData, MountPath: bridgeFolder(volumeUserData)},
	}
	for _, f := range fetched {
		out = append(out, corev1.VolumeMount{Name: f.volume, MountPath: bridgeFolder(f.volume)})
	}
	return out
}
