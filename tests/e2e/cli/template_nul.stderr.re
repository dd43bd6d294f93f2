sluice: messages: the rendered prompt holds a NUL at byte \d+: its text can not be given
