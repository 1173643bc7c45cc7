//go:build tools

// Package tools names what hack/cluster builds.
package tools

import _ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
