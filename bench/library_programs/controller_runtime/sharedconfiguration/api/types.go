// Package api has the resource of examples/controllers/shared_configuration.py.
// +kubebuilder:object:generate=true
// +groupName=example.com
package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

var (
	GroupVersion  = schema.GroupVersion{Group: "example.com", Version: "v1"}
	SchemeBuilder = &scheme.Builder{GroupVersion: GroupVersion}
	AddToScheme   = SchemeBuilder.AddToScheme
)

type SharedConfigurationSpec struct {
	// Namespace of the originals.
	// +kubebuilder:validation:MinLength=1
	Originals string `json:"originals"`
	// Labels of the namespaces that get copies.
	// +optional
	Namespaces metav1.LabelSelector `json:"namespaces,omitempty"`
}

type SharedConfigurationStatus struct {
	Copies int `json:"copies,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
type SharedConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SharedConfigurationSpec   `json:"spec,omitempty"`
	Status            SharedConfigurationStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true
type SharedConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SharedConfiguration `json:"items"`
}

func init() {
	SchemeBuilder.Register(&SharedConfiguration{}, &SharedConfigurationList{})
}
