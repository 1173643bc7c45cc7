// Package v1 is the older version of examples/controllers/web_apps.py.
// +kubebuilder:object:generate=true
// +groupName=example.com
package v1

import (
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/scheme"

	v2 "librarybench/webapps/api/v2"
)

const surge = "example.com/max-surge"

var (
	GroupVersion  = schema.GroupVersion{Group: "example.com", Version: "v1"}
	SchemeBuilder = &scheme.Builder{GroupVersion: GroupVersion}
	AddToScheme   = SchemeBuilder.AddToScheme
)

type WebAppSpec struct {
	// Reference of the image, such as shop:1.2.
	Image string `json:"image"`
	Size  int32  `json:"size,omitempty"`
}

type WebAppStatus struct {
	Ready int32 `json:"ready,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type WebApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WebAppSpec   `json:"spec,omitempty"`
	Status            WebAppStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true
type WebAppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WebApp `json:"items"`
}

func init() {
	SchemeBuilder.Register(&WebApp{}, &WebAppList{})
}

func (old *WebApp) ConvertTo(hub conversion.Hub) error {
	stored := hub.(*v2.WebApp)
	stored.ObjectMeta = *old.ObjectMeta.DeepCopy()
	stored.Spec.Image = v2.Image{Repository: old.Spec.Image}
	if colon := strings.LastIndex(old.Spec.Image, ":"); colon > strings.LastIndex(old.Spec.Image, "/") {
		stored.Spec.Image = v2.Image{Repository: old.Spec.Image[:colon], Tag: old.Spec.Image[colon+1:]}
	}
	if text, found := old.Annotations[surge]; found {
		number, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return err
		}
		stored.Spec.MaxSurge = int32(number)
		delete(stored.Annotations, surge)
	}
	stored.Spec.Replicas = old.Spec.Size
	stored.Status.Ready = old.Status.Ready
	return nil
}

func (old *WebApp) ConvertFrom(hub conversion.Hub) error {
	stored := hub.(*v2.WebApp)
	old.ObjectMeta = *stored.ObjectMeta.DeepCopy()
	old.Spec.Image = stored.Spec.Image.Repository
	if stored.Spec.Image.Tag != "" {
		old.Spec.Image += ":" + stored.Spec.Image.Tag
	}
	if stored.Spec.MaxSurge != 0 {
		notes := map[string]string{surge: strconv.Itoa(int(stored.Spec.MaxSurge))}
		maps.Copy(notes, old.Annotations)
		old.Annotations = notes
	}
	old.Spec.Size = stored.Spec.Replicas
	old.Status.Ready = stored.Status.Ready
	return nil
}
