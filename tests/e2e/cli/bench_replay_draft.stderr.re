sluice: --draft-vocab: not with --replay: the drafts are those of the recording
