// The scheduler of the emulator comes here.
