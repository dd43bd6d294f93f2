sluice: --calib-tokens: needs a text to calibrate with: --calib TEXT
