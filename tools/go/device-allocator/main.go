// Allocates devices as kube-scheduler does: each line of standard input is an instance as JSON (a node, slices, classes,
// devices that are allocated, claims), each line of standard output says whether it is feasible, with the devices.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type instance struct {
	Node      *corev1.Node                 `json:"node"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Classes   classes                      `json:"classes"`
	Allocated [][3]string                  `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("there is no device class %q", name)
}

type answer struct {
	Feasible    bool                           `json:"feasible"`
	Error       string                         `json:"error,omitempty"`
	Timeout     bool                           `json:"timeout,omitempty"`
	Allocations []resourceapi.AllocationResult `json:"allocations,omitempty"`
}

// Consumable capacity selects the allocator that knows distinctAttribute.
var features = structured.Features{
	AdminAccess:          true,
	ConsumableCapacity:   true,
	DeviceTaints:         true,
	PartitionableDevices: true,
	PrioritizedList:      true,
}

func (i *instance) allocate(cache *cel.Cache) answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, id := range i.Allocated {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	allocator, err := structured.NewAllocator(ctx, features, state, i.Classes, i.Slices, cache)
	if err != nil {
		return answer{Error: err.Error()}
	}
	results, err := allocator.Allocate(ctx, i.Node, i.Claims)
	if err != nil {
		return answer{Error: err.Error(), Timeout: ctx.Err() != nil}
	}
	return answer{Feasible: results != nil, Allocations: results}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	cache := cel.NewCache(1000, cel.Features{EnableConsumableCapacity: true})
	for lines.Scan() {
		var read instance
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			fmt.Fprintln(os.Stderr, "device-allocator: not an instance:", err)
			os.Exit(1)
		}
		if err := encoder.Encode(read.allocate(cache)); err != nil {
			fmt.Fprintln(os.Stderr, "device-allocator:", err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "device-allocator:", err)
		os.Exit(1)
	}
}
