// Writes JobSets as typed clients do: it decodes an object into Go types, changes a field, and
// writes back all of it as the types print it.
//
// Input: one line "namespace/name" for each JobSet. Output: one JSON object a line, from the name of
// each step to the API server's refusal, "" where there was none. A first argument "print" has it
// read JobSets as JSON instead, one a line, and print them as its types do.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type jobSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              jobSetSpec      `json:"spec,omitempty"`
	Status            json.RawMessage `json:"status,omitempty"`
}

type jobSetSpec struct {
	ReplicatedJobs      []replicatedJob     `json:"replicatedJobs,omitempty"`
	Network             *network            `json:"network,omitempty"`
	SuccessPolicy       *successPolicy      `json:"successPolicy,omitempty"`
	FailurePolicy       *failurePolicy      `json:"failurePolicy,omitempty"`
	StartupPolicy       *startupPolicy      `json:"startupPolicy,omitempty"`
	Suspend             *bool               `json:"suspend,omitempty"`
	Coordinator         *coordinator        `json:"coordinator,omitempty"`
	ManagedBy           *string             `json:"managedBy,omitempty"`
	TTLSeconds          *int32              `json:"ttlSecondsAfterFinished,omitempty"`
	VolumeClaimPolicies []volumeClaimPolicy `json:"volumeClaimPolicies,omitempty"`
	// Fields that this client's types do not know are lost, as they are with every typed client.
	GroupScheduling json.RawMessage `json:"groupSchedulingConfig,omitempty"`
}

type replicatedJob struct {
	Name      string                  `json:"name"`
	GroupName string                  `json:"groupName,omitempty"`
	Template  batchv1.JobTemplateSpec `json:"template"`
	Replicas  int32                   `json:"replicas,omitempty"`
	DependsOn []dependsOn             `json:"dependsOn,omitempty"`
}

type dependsOn struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

type network struct {
	EnableDNSHostnames *bool  `json:"enableDNSHostnames,omitempty"`
	Subdomain          string `json:"subdomain,omitempty"`
	PublishNotReady    *bool  `json:"publishNotReadyAddresses,omitempty"`
}

type successPolicy struct {
	Operator string   `json:"operator"`
	Targets  []string `json:"targetReplicatedJobs,omitempty"`
}

type failurePolicy struct {
	MaxRestarts     int32                `json:"maxRestarts,omitempty"`
	RestartStrategy string               `json:"restartStrategy,omitempty"`
	Rules           []failurePolicyRule `json:"rules,omitempty"`
}

type failurePolicyRule struct {
	Name            string   `json:"name"`
	Action          string   `json:"action"`
	Reasons         []string `json:"onJobFailureReasons,omitempty"`
	MessagePatterns []string `json:"onJobFailureMessagePatterns,omitempty"`
	Targets         []string `json:"targetReplicatedJobs,omitempty"`
}

type startupPolicy struct {
	Order string `json:"startupPolicyOrder"`
}

type coordinator struct {
	ReplicatedJob string `json:"replicatedJob"`
	JobIndex      int    `json:"jobIndex,omitempty"`
	PodIndex      int    `json:"podIndex,omitempty"`
}

type volumeClaimPolicy struct {
	Templates []corev1.PersistentVolumeClaim `json:"templates,omitempty"`
	Retention *retentionPolicy               `json:"retentionPolicy,omitempty"`
}

type retentionPolicy struct {
	WhenDeleted *string `json:"whenDeleted,omitempty"`
}

type client struct {
	http *http.Client
	base string
}

func (c client) send(verb, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(verb, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		var status metav1.Status
		if json.Unmarshal(answer, &status) == nil && status.Message != "" {
			return nil, fmt.Errorf("%d %s", response.StatusCode, status.Message)
		}
		return nil, fmt.Errorf("%d %s", response.StatusCode, answer)
	}
	return answer, err
}

func (c client) get(path string) (*jobSet, error) {
	answer, err := c.send("GET", path, "", nil)
	if err != nil {
		return nil, err
	}
	out := &jobSet{}
	return out, json.Unmarshal(answer, out)
}

// update reads, changes and writes; a conflict with another writer is tried again.
func (c client) update(path string, change func(*jobSet)) error {
	for try := 0; ; try++ {
		object, err := c.get(path)
		if err != nil {
			return err
		}
		change(object)
		_, err = c.send("PUT", path, "application/json", printed(object))
		if err == nil || try == 20 || !strings.HasPrefix(err.Error(), "409 ") {
			return err
		}
	}
}

func (c client) steps(path string) []step {
	setSuspend := func(value bool) func(*jobSet) {
		return func(object *jobSet) { object.Spec.Suspend = &value }
	}
	return []step{
		{"update without a change", func() error { return c.update(path, func(*jobSet) {}) }},
		{"suspend", func() error { return c.update(path, setSuspend(true)) }},
		{"merge patch", func() error {
			object, err := c.get(path)
			if err != nil {
				return err
			}
			before := printed(object)
			object.Labels = map[string]string{"patched": "merge"}
			after := printed(object)
			patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
			if err == nil {
				_, err = c.send("PATCH", path, "application/merge-patch+json", patch)
			}
			return err
		}},
		{"json patch of all of the spec", func() error {
			object, err := c.get(path)
			if err != nil {
				return err
			}
			spec, err := json.Marshal(object.Spec)
			if err != nil {
				return err
			}
			patch := fmt.Sprintf(`[{"op":"replace","path":"/spec","value":%s}]`, spec)
			_, err = c.send("PATCH", path, "application/json-patch+json", []byte(patch))
			return err
		}},
		{"server-side apply", func() error {
			object, err := c.get(path)
			if err != nil {
				return err
			}
			applied := &jobSet{TypeMeta: object.TypeMeta, Spec: object.Spec}
			applied.Name, applied.Namespace = object.Name, object.Namespace
			_, err = c.send("PATCH", path+"?fieldManager=typed&force=true",
				"application/apply-patch+yaml", printed(applied))
			return err
		}},
		{"resume with a node selector", func() error {
			return c.update(path, func(object *jobSet) {
				setSuspend(false)(object)
				for at := range object.Spec.ReplicatedJobs {
					pod := &object.Spec.ReplicatedJobs[at].Template.Spec.Template
					if pod.Labels == nil {
						pod.Labels = map[string]string{}
					}
					pod.Labels["flavor"] = "a"
				}
			})
		}},
		{"another image", func() error {
			return c.update(path, func(object *jobSet) {
				for at := range object.Spec.ReplicatedJobs {
					pod := &object.Spec.ReplicatedJobs[at].Template.Spec.Template.Spec
					pod.Containers[0].Image = "another"
				}
			})
		}},
	}
}

type step struct {
	name string
	run  func() error
}

func printed(object any) []byte {
	out, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return out
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	if len(os.Args) > 1 && os.Args[1] == "print" {
		for lines.Scan() {
			object := &jobSet{}
			if err := json.Unmarshal(lines.Bytes(), object); err != nil {
				fmt.Println(string(printed(map[string]string{"error": err.Error()})))
				continue
			}
			fmt.Println(string(printed(object)))
		}
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		panic(err)
	}
	c := client{web, config.Host}
	for lines.Scan() {
		namespace, name, _ := strings.Cut(lines.Text(), "/")
		path := "/apis/jobset.x-k8s.io/v1alpha2/namespaces/" + namespace + "/jobsets/" + name
		results := map[string]string{}
		for _, each := range c.steps(path) {
			results[each.name] = ""
			if err := each.run(); err != nil {
				results[each.name] = err.Error()
			}
		}
		fmt.Println(string(printed(results)))
	}
}
