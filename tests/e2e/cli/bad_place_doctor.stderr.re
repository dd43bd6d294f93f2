sluice: --place: what lies where depends on the model: -m MODEL is needed
